//! Takes the indentation out of the document that describes the API, a third of it.

use std::path::Path;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let source = "src/api/openapi.json";
    println!("cargo:rerun-if-changed={source}");
    // No text of JSON goes over the end of a line.
    let short: String = fs::read_to_string(source)?.lines().map(str::trim_start).collect();
    fs::write(Path::new(&env::var_os("OUT_DIR").unwrap_or_default()).join("openapi.json"), short)
}
