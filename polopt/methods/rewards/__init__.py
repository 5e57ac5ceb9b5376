"""What an answer is worth: corrections, penalties and gates of rewards."""
