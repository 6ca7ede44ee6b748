#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| bailey_tree::fuzz::packs(data));
