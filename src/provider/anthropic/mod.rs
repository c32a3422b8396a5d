//! Anthropic's Messages API. Source: the API reference, "Messages" and "Streaming messages".

mod decode;
mod encode;
#[cfg(test)]
mod tests;

pub use decode::ResponseDecoder;
pub use encode::{encode, refuses, unfit};
