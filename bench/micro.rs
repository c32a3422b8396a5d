//! What the pure rings cost, natively: `cargo bench`, or `cargo bench decode` for a part of it.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on has failed")]

mod rig;
mod streams;

use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use layby::api;
use layby::provider::{ContextLine, Decoder, ModelCall, Prompt, Provider, Sampling};
use layby::session::{Cursor, Input, ModelEvent, PartKind};
use layby::sse;

use rig::{Rig, call, finish, frames, given, say, text};
use streams::{DELTAS, Dialect, Dialect::*, PROSE, texts, transcript};

fn main() {
    divan::main();
}

/// Bytes to the messages of an event stream.
mod sse_decoder {
    use super::*;

    #[divan::bench(args = [Responses, WorkersAi])]
    fn packets(bencher: Bencher, dialect: Dialect) {
        run(bencher, &dialect.packets());
    }

    #[divan::bench(args = [Responses, WorkersAi])]
    fn events(bencher: Bencher, dialect: Dialect) {
        run(bencher, &dialect.events());
    }

    fn run(bencher: Bencher, chunks: &[Vec<u8>]) {
        bencher.counter(bytes(chunks)).counter(ItemsCount::new(DELTAS)).bench(|| {
            let mut decoder = sse::Decoder::new(1 << 20);
            let mut messages = Vec::new();
            chunks.iter().for_each(|chunk| decoder.push(chunk, &mut messages).unwrap());
            messages.len()
        });
    }
}

/// Bytes to the words of the session.
mod decode {
    use super::*;

    #[divan::bench(args = [Responses, Chat, Anthropic, Thinking, WorkersAi])]
    fn packets(bencher: Bencher, dialect: Dialect) {
        run(bencher, dialect, &dialect.packets());
    }

    #[divan::bench(args = [Responses, Chat, Anthropic, Thinking, WorkersAi])]
    fn events(bencher: Bencher, dialect: Dialect) {
        run(bencher, dialect, &dialect.events());
    }

    fn run(bencher: Bencher, dialect: Dialect, chunks: &[Vec<u8>]) {
        let decoder = || ask(&dialect.provider(), &[]).1;
        let decode = |mut decoder: Box<dyn Decoder>| {
            let mut events = Vec::new();
            chunks.iter().for_each(|chunk| decoder.push(chunk, &mut events).unwrap());
            decoder.finish(&mut events).unwrap();
            events
        };
        let said = decode(decoder());
        assert_eq!(said.iter().filter(|event| matches!(event, ModelEvent::Text { .. })).count(), DELTAS);
        let bencher = bencher.counter(bytes(chunks)).counter(ItemsCount::new(DELTAS));
        bencher.with_inputs(decoder).bench_local_values(decode);
    }
}

/// `Session::step` alone.
mod step {
    use super::*;

    #[divan::bench]
    fn message(bencher: Bencher) {
        run(bencher, &Rig::new(), say);
    }

    #[divan::bench]
    fn output(bencher: Bencher) {
        let mut rig = Rig::asked();
        rig.model(call(0));
        run(bencher, &rig, || given(0));
    }

    #[divan::bench]
    fn delta(bencher: Bencher) {
        let mut rig = Rig::asked();
        rig.model(vec![ModelEvent::Message]);
        run(bencher, &rig, || rig.said(vec![text(PROSE)]));
    }

    /// The end of an answer whose text is known.
    #[divan::bench]
    fn end(bencher: Bencher) {
        let rig = Rig::written();
        run(bencher, &rig, || rig.said(vec![finish()]));
    }

    fn run(bencher: Bencher, rig: &Rig, input: impl Fn() -> Input) {
        bencher.with_inputs(|| (rig.clone(), input())).bench_local_values(|(mut rig, input)| {
            let effects = rig.step(input);
            (rig, effects) // is dropped outside of the measurement
        });
    }
}

/// What subscribers are sent.
mod publish {
    use super::*;

    /// A whole answer, each delta stepped and published by itself; in so many parts.
    #[divan::bench(args = [1, 50])]
    fn deltas(bencher: Bencher, parts: usize) {
        let mut rig = Rig::asked();
        rig.model(vec![ModelEvent::Reasoning]);
        let delta =
            |(n, text)| ModelEvent::Text { kind: PartKind::Summary, fresh: n % (DELTAS / parts) == 0, text };
        let inputs = || texts().enumerate().map(|text| rig.said(vec![delta(text)])).collect::<Vec<_>>();
        bencher.counter(ItemsCount::new(DELTAS)).with_inputs(|| (rig.clone(), inputs())).bench_local_values(
            |(mut rig, inputs)| inputs.into_iter().map(|input| rig.perform(input).len()).sum::<usize>(),
        );
    }

    /// The records that end a turn whose text is known.
    #[divan::bench]
    fn end(bencher: Bencher) {
        let mut rig = Rig::written();
        let appended = rig.step(rig.said(vec![finish()])).append;
        rig.log.append(&appended);
        bencher.with_inputs(|| rig.clone()).bench_local_values(|mut rig| {
            let events = api::publish(&mut rig.session, &appended, &rig.log).unwrap();
            frames(&rig.session, &events)
        });
    }

    /// The stream of so many turns from its beginning.
    #[divan::bench(args = [1, 100])]
    fn replay(bencher: Bencher, turns: usize) {
        let mut rig = Rig::new();
        for n in 0..turns {
            rig.perform(say());
            rig.model(call(n));
            rig.perform(given(n));
            rig.model(vec![ModelEvent::Message, text(PROSE), finish()]);
        }
        let events = || api::replay(&rig.session, Cursor::START, usize::MAX, &rig.log).unwrap().events;
        let size = frames(&rig.session, &events()).len();
        let bencher = bencher.counter(BytesCount::new(size)).counter(ItemsCount::new(events().len()));
        bencher.bench_local(|| frames(&rig.session, &events()));
    }
}

/// The body of a model request from a transcript of `N` items.
#[divan::bench(args = [Responses, Chat, Anthropic, WorkersAi], consts = [10, 1000])]
fn request<const N: usize>(bencher: Bencher, dialect: Dialect) {
    let (provider, context) = (dialect.provider(), transcript(N));
    let size = match ask(&provider, &context).0 {
        ModelCall::Http(request) => request.body.len(),
        ModelCall::Binding(run) => run.input.len(),
    };
    let bencher = bencher.counter(BytesCount::new(size)).counter(ItemsCount::new(N));
    bencher.bench_local(|| ask(&provider, &context));
}

fn ask(provider: &Provider, context: &[ContextLine]) -> (ModelCall, Box<dyn Decoder>) {
    let (instructions, sampling) = (Some("Be brief."), &Sampling::default());
    provider
        .ask(&Prompt { model: "m", instructions, tools: &[], context, sampling, withheld: &[], lessons: &[] })
        .unwrap()
}

fn bytes(chunks: &[Vec<u8>]) -> BytesCount {
    BytesCount::new(chunks.iter().map(Vec::len).sum::<usize>())
}
