"""Short names for the numbers of fixed width that formats and offsets are made of."""

ctypedef unsigned char u8
ctypedef unsigned short u16
ctypedef unsigned int u32
ctypedef unsigned long long u64
ctypedef long long i64
