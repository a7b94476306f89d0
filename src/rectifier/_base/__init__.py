"""What every room uses: checks of arguments, messages, files, distances."""
