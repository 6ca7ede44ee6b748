#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| bailey_policy::fuzz::policies(data));
