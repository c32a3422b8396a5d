//! OpenAI's Responses API. Source: the API reference, "Responses" and "Streaming events".

mod decode;
mod encode;
mod items;
#[cfg(test)]
mod tests;

pub use decode::ResponseDecoder;
pub use encode::encode;
