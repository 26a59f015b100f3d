"""What an Estimator reuses from one call to the next: graphs, exports, texts."""
