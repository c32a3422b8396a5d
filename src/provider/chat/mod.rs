//! OpenAI's Chat Completions API and the many hosts that imitate it. Source: the API reference, "Chat Completions".

mod calls;
mod decode;
mod encode;
#[cfg(test)]
mod tests;

pub use decode::ResponseDecoder;
pub use encode::{encode, messages, response_format, tools, unfit};
