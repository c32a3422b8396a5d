//! Stands in for the `wasm-bindgen` command: the options that worker-build passes, and nothing else.
//!
//! As a member of the worker's workspace it cannot drift from the `wasm-bindgen` library that the worker links.

use anyhow::{Context, Result, bail};
use wasm_bindgen_cli_support::Bindgen;

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let mut bindgen = Bindgen::new();
    let (mut input, mut out) = (None, None);
    while let Some(arg) = args.next() {
        let (key, mut inline) = match arg.split_once('=') {
            Some((key, value)) => (key.to_string(), Some(value.to_string())),
            None => (arg, None),
        };
        let mut value = || inline.take().or_else(|| args.next()).with_context(|| format!("{key} needs a value"));
        match key.as_str() {
            "--target" => match value()?.as_str() {
                "module" => drop(bindgen.module(true)?),
                "bundler" => drop(bindgen.bundler(true)?),
                target => bail!("target {target} is not supported"),
            },
            "--out-dir" => out = Some(value()?),
            "--out-name" => drop(bindgen.out_name(&value()?)),
            "--no-typescript" => drop(bindgen.typescript(false)),
            "--no-demangle" => drop(bindgen.demangle(false)),
            "--debug" => drop(bindgen.debug(true)),
            "--keep-debug" => drop(bindgen.keep_debug(true)),
            "--experimental-reset-state-function" => drop(bindgen.reset_state_function(true)),
            "--force-enable-abort-handler" => drop(bindgen.force_enable_abort_handler(true)),
            option if option.starts_with('-') => bail!("option {option} is not supported"),
            _ => input = Some(key),
        }
    }
    bindgen.input_path(input.context("no input file")?).generate(out.context("no --out-dir")?)
}
