"""What each kernel gives on a whole step."""
