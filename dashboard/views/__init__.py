"""One module a page; app.py lists them. The folder is not called `pages`: Streamlit would take it for its own kind."""
