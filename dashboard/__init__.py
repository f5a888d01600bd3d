"""Streamlit pages: analysis in, pixels out."""
