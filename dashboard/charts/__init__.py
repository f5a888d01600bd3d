"""Reports as plotly figures; no Streamlit here, so that the same figures go into downloaded files."""
