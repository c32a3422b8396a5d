#![no_main]

use layby::sse::{Decoder, Message, TooLong};

fn decode<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Result<Vec<Message>, TooLong> {
    let mut decoder = Decoder::new(4096);
    let mut messages = Vec::new();
    for chunk in chunks {
        decoder.push(chunk, &mut messages)?;
    }
    Ok(messages)
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    assert_eq!(decode([data]), decode(data.chunks(1)));
});
