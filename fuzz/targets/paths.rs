#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| bailey_protocol::fuzz::paths(data));
