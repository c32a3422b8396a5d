//! `GET …/events`: pages of events as JSON, waiting for the next one if there is none. The worker waits; the object
//! sleeps.

use std::time::Duration;

use futures::{FutureExt, StreamExt};
use serde::Deserialize;
use serde::de::IgnoredAny;
use web_sys::Response;
use worker::{Delay, WebsocketEvent};

use super::bridge;
use crate::api::Error;
use crate::json;
use crate::runtime::platform::fault::internal;
use crate::runtime::platform::http::{self, Request, ResponseContext};
use crate::runtime::wire::Object;

#[derive(Deserialize)]
struct Page {
    data: Vec<IgnoredAny>,
    cursor: String,
}

pub async fn events(object: &Object, req: &Request, context: &ResponseContext) -> Result<Response, Error> {
    let wait = req.query().events()?.wait;
    let answer = object.pass(req).await?;
    if wait == 0 || answer.status() != 200 || req.method == "HEAD" {
        return Ok(answer);
    }
    let text = http::text(&answer).await?;
    let page: Page = json::read(&text).map_err(internal)?;
    if page.data.is_empty() && something_happens(object, &page.cursor, wait).await? {
        return object.pass(req).await;
    }
    context.respond_json(text).map(Into::into)
}

/// Waits until there is an event after `cursor`, or until the time is up.
async fn something_happens(object: &Object, cursor: &str, wait: u64) -> Result<bool, Error> {
    let answer = object.dial(Some(cursor)).await?;
    let Some(socket) = bridge::socket(answer) else { return Ok(true) }; // a page, or an error the next request reports
    let mut events = socket.events().map_err(internal)?;
    socket.accept().map_err(internal)?;
    let mut limit = Delay::from(Duration::from_secs(wait)).fuse();
    let happened = loop {
        futures::select_biased! {
            event = events.next().fuse() => match event {
                // If nothing was missed, the first message only gives the stream's position.
                Some(Ok(WebsocketEvent::Message(message)))
                    if message.text().is_some_and(|text| text.split_once('\n').is_some_and(|(_, frames)| frames.is_empty())) => {}
                _ => break true,
            },
            () = limit => break false,
        }
    };
    drop(socket.close::<String>(None, None));
    Ok(happened)
}
