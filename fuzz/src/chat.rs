#![no_main]

use layby::provider::Provider;

libfuzzer_sys::fuzz_target!(|data: &[u8]| layby_fuzz::answer(Provider::OpenAiChat, data));
