//! The platform's own models: its binding `AI`, which `worker` binds without options and without the response's status.

use wasm_bindgen::prelude::*;
use web_sys::Response;
use worker::Env;
use worker::wasm_bindgen_futures::JsFuture;

use crate::provider::Run;

/// The binding's name in `wrangler.toml`.
const BINDING: &str = "AI";

#[wasm_bindgen]
extern "C" {
    pub type Ai;

    #[wasm_bindgen(method, catch)]
    fn run(this: &Ai, model: &str, input: &JsValue, options: &JsValue) -> Result<js_sys::Promise, JsValue>;
}

/// The binding, if the deployment has it.
pub fn binding(env: &Env) -> Option<Ai> {
    let binding = js_sys::Reflect::get(env, &JsValue::from_str(BINDING)).ok()?;
    (!binding.is_undefined()).then(|| binding.unchecked_into())
}

pub async fn run(binding: &Ai, run: Run) -> Result<Response, JsValue> {
    let (input, options) = (js_sys::JSON::parse(&run.input)?, js_sys::JSON::parse(&run.options)?);
    let asked = binding.run(&run.model, &input, &options)?;
    drop((run, input)); // they may be large, and the model may think for long
    let answer = JsFuture::from(asked).await?;
    answer.dyn_into().map_err(|_| "the binding AI gave no response".into())
}
