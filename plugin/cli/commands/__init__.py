"""The commands of ``sartor``, one file each."""
