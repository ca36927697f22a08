"""The server as several replicas on Ray Serve, each with its own cameras, behind one front."""
