"""`covshift serve`: an inference server whose model follows each camera."""
