"""The commands around the service, one module each: `app` is what the command line imports when it is called."""
