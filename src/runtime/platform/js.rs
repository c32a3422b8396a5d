//! Crossing into JavaScript: whole structures cross as one JSON text, since a crossing costs as much as a hundred bytes
//! of JSON.

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

    /// The result of a read.
    type Chunk;

    /// `None` at the end.
    #[wasm_bindgen(method, getter)]
    fn value(this: &Chunk) -> Option<js_sys::Uint8Array>;
}

pub fn object(value: &impl Serialize) -> Result<JsValue, JsValue> {
    js_sys::JSON::parse(&serde_json::to_string(value).map_err(|e| e.to_string())?)
}

/// A text as UTF-8, without copying it inside wasm.
pub fn encode(text: &js_sys::JsString) -> js_sys::Uint8Array {
    thread_local! {
        static ENCODER: TextEncoder = TextEncoder::new();
    }
    ENCODER.with(|encoder| encoder.encode(text))
}

/// A possibly long text. `wasm-bindgen` would copy its ASCII prefix character by character.
pub fn string(text: &js_sys::JsString) -> Vec<u8> {
    encode(text).to_vec()
}

pub fn message(e: &JsValue) -> String {
    e.dyn_ref::<js_sys::Error>().map_or_else(|| format!("{e:?}"), |e| e.message().into())
}

/// Detaches a promise: its failure is noticed elsewhere.
pub fn ignore(promise: &js_sys::Promise) {
    thread_local! {
        static NOTHING: Closure<dyn FnMut(JsValue)> = Closure::new(drop);
    }
    NOTHING.with(|nothing| drop(promise.catch(nothing)));
}

/// A body, chunk by chunk. Dropped early, it is cancelled; read to its end, it needs nothing more, and its connection
/// can be reused.
pub struct Chunks {
    reader: ReadableStreamDefaultReader,
    ended: bool,
}

impl Chunks {
    /// Of an unread body.
    pub fn of(body: &ReadableStream) -> Self {
        Self { reader: body.get_reader().unchecked_into(), ended: false }
    }

    /// The next chunk; `None` at the end. An error means that the connection broke.
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
