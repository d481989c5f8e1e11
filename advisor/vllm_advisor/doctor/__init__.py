"""`advisor doctor`: what a log or a running server shows, why it failed, and the smallest change that helps."""
