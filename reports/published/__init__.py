"""Numbers from papers, printed beside ours."""
