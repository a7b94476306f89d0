"""What a person reads: profiles of data, tables and figures. The paper's own numbers are in ``published``."""
