//! A session in memory, with the state that is not stored.

use super::request::OpenRequest;
use crate::api::{Bucket, SessionInfo};
use crate::runtime::platform::clock;
use crate::session::Session;

/// A session in memory.
pub struct Live {
    pub session: Session,
    pub info: SessionInfo,
    /// What the directory knows of it.
    pub listing: DirectorySync,
    /// Rate of events posted to it.
    pub events: Bucket,
    /// Rate of messages from token holders.
    pub token_messages: Bucket,
    /// Rate of reads by token holders.
    pub token_reads: Bucket,
    /// Whether this instance has continued what a dead one left behind.
    pub(super) resumed: bool,
    /// The running model request, by its place.
    pub request: Option<OpenRequest>,
    /// What its subscribers have been sent.
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
    /// The last version this instance knows the directory to have.
    pub(super) told: Option<u64>,
    /// Whether storage says that the directory has ever listed the session.
    pub known: bool,
    /// When a summary was last sent.
    pub(super) told_at: u64,
    /// Whether a summary is being sent.
    pub(super) telling: bool,
    /// When the next summary will be sent.
    pub(super) due: Option<u64>,
    /// Whether its usage is inherited from the session it forks.
    pub inherits: bool,
}

impl DirectorySync {
    /// As storage has it.
    pub fn stored(known: bool) -> Self {
        Self { known, ..Self::default() }
    }
}

/// The progress of publication.
pub struct Published {
    /// Bytes of events since the last checkpoint of the open items.
    pub(super) unsaved: usize,
    /// When that was written, Unix time in milliseconds.
    pub(super) saved_at: u64,
    /// When something was last sent, Unix time in milliseconds.
    pub(super) at: u64,
    /// Whether coalesced deltas will be sent in a moment.
    pub(super) flush_is_due: bool,
}

impl Published {
    /// Nothing has been sent yet.
    pub fn new() -> Self {
        Self { unsaved: 0, saved_at: clock::millis(), at: 0, flush_is_due: false }
    }
}
