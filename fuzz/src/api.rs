#![no_main]

//! Whatever a client sends is read or refused; what is refused says why.

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Ok(body) = std::str::from_utf8(data) else { return };
    let refusals = [
        layby::api::command(body).err(),
        layby::api::create(body).err(),
        layby::api::patch(body).err(),
        layby::api::fork(body).err(),
    ];
    for error in refusals.into_iter().flatten() {
        assert!(!error.message.is_empty());
        assert!((400..500).contains(&error.code.wire().0));
    }
});
