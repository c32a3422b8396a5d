//! A session in memory, and what goes with it that is not stored.

use super::request::OpenRequest;
use crate::api::{Bucket, SessionInfo};
use crate::runtime::platform::clock;
use crate::session::Session;

/// A session in memory.
pub struct Live {
    /// The machine.
    pub session: Session,
    /// What seldom changes.
    pub info: SessionInfo,
    /// What the directory knows of it.
    pub listing: DirectorySync,
    /// How often it was sent events.
    pub events: Bucket,
    /// How often holders of tokens posted messages.
    pub token_messages: Bucket,
    /// How often holders of tokens read.
    pub token_reads: Bucket,
    /// Whether this instance has gone on with what a dead one left behind.
    pub(super) resumed: bool,
    /// The model request that runs, by the place that asked for it.
    pub request: Option<OpenRequest>,
    /// What its subscribers have been shown.
    pub published: Published,
}

impl Live {
    pub(super) fn new(session: Session, info: SessionInfo, listing: DirectorySync) -> Self {
        Self {
            session,
            info,
            listing,
            events: Bucket::default(),
            token_messages: Bucket::default(),
            token_reads: Bucket::default(),
            resumed: false,
            request: None,
            published: Published::new(),
        }
    }
}

/// What the directory knows of the session.
#[derive(Default)]
pub struct DirectorySync {
    /// The version that this instance knows it to have.
    pub(super) told: Option<u64>,
    /// Whether storage says that it has ever had one.
    pub known: bool,
    /// When it was told last.
    pub(super) told_at: u64,
    /// Whether it is being told.
    pub(super) telling: bool,
    /// When it will be told next.
    pub(super) due: Option<u64>,
    /// Whether what the session has used was used by the one that it is a copy of.
    pub inherits: bool,
}

impl DirectorySync {
    /// As storage has it.
    pub fn stored(known: bool) -> Self {
        Self { known, ..Self::default() }
    }
}

/// How far publication has come.
pub struct Published {
    /// Bytes of events since the last checkpoint of the open items.
    pub(super) unsaved: usize,
    /// When that was written, Unix time in milliseconds.
    pub(super) saved_at: u64,
    /// When something was sent last, Unix time in milliseconds.
    pub(super) at: u64,
    /// Whether deltas have gathered that will be sent in a moment.
    pub(super) flush_is_due: bool,
}

impl Published {
    /// Nothing has been sent yet.
    pub fn new() -> Self {
        Self { unsaved: 0, saved_at: clock::millis(), at: 0, flush_is_due: false }
    }
}
