"""The commands of ``sartor db``, one file each."""
