"""The web application participants use: plain pages that work without JavaScript, and one transaction per page."""
