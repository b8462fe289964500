"""The service of two parties: a data holder who keeps records and budget, and analysts who ask."""
