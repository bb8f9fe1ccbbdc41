"""What a call of a session does with its caller's memory: check and read inputs, lend outputs, bind to both."""
