"""What compilations keep in the user's cache folder for later ones: files that only this user can have written."""
