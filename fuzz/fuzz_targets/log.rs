#![no_main]
//! See `bodies::log`.

#[allow(dead_code)] // each target uses one body
#[path = "../src/bodies.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|data: &[u8]| bodies::log(data));
