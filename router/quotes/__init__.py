"""From a job and a deadline to a quote: its distribution, what moves it, what other deadlines cost. Pure."""
