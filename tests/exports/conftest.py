collect_ignore = ["make.py", "parts.py"]  # need torch and transformers; everything else here needs neither
