//! What crosses into JavaScript, and how: whole structures as one JSON text, since a crossing costs as much as a hundred
//! bytes of JSON.

use serde::Serialize;
use wasm_bindgen::prelude::*;
use web_sys::{ReadableStream, ReadableStreamDefaultReader};
use worker::wasm_bindgen_futures::JsFuture;

#[wasm_bindgen]
extern "C" {
    type TextEncoder;

    #[wasm_bindgen(constructor)]
    fn new() -> TextEncoder;

    #[wasm_bindgen(method)]
    fn encode(this: &TextEncoder, text: &js_sys::JsString) -> js_sys::Uint8Array;

    /// What a read gives.
    type Chunk;

    /// None at the end.
    #[wasm_bindgen(method, getter)]
    fn value(this: &Chunk) -> Option<js_sys::Uint8Array>;
}

/// A structure.
pub fn object(value: &impl Serialize) -> Result<JsValue, JsValue> {
    js_sys::JSON::parse(&serde_json::to_string(value).map_err(|e| e.to_string())?)
}

/// A text as UTF-8, without a copy of it in wasm.
pub fn encode(text: &js_sys::JsString) -> js_sys::Uint8Array {
    thread_local! {
        static ENCODER: TextEncoder = TextEncoder::new();
    }
    ENCODER.with(|encoder| encoder.encode(text))
}

/// A text that may be long. `wasm-bindgen` would copy it letter by letter as far as it is ASCII.
pub fn string(text: &js_sys::JsString) -> Vec<u8> {
    encode(text).to_vec()
}

/// What went wrong.
pub fn message(e: &JsValue) -> String {
    e.dyn_ref::<js_sys::Error>().map_or_else(|| format!("{e:?}"), |e| e.message().into())
}

/// Lets a promise be: that it fails is noticed elsewhere.
pub fn ignore(promise: &js_sys::Promise) {
    thread_local! {
        static NOTHING: Closure<dyn FnMut(JsValue)> = Closure::new(drop);
    }
    NOTHING.with(|nothing| drop(promise.catch(nothing)));
}

/// A body, piece by piece. Given up, it is cancelled; read to its end, it needs nothing more, and its connection can be
/// used again.
pub struct Chunks {
    reader: ReadableStreamDefaultReader,
    ended: bool,
}

impl Chunks {
    /// Of a body that nobody reads yet.
    pub fn of(body: &ReadableStream) -> Self {
        Self { reader: body.get_reader().unchecked_into(), ended: false }
    }

    /// The next piece; none at the end. An error is a connection that broke.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, JsValue> {
        let read = JsFuture::from(self.reader.read()).await;
        let bytes = read.map(|read| read.unchecked_into::<Chunk>().value());
        self.ended = !matches!(bytes, Ok(Some(_)));
        bytes.map(|bytes| bytes.map(|bytes| bytes.to_vec()))
    }
}

impl Drop for Chunks {
    fn drop(&mut self) {
        if !self.ended {
            ignore(&self.reader.cancel());
        }
    }
}
