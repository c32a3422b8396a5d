//! The pages the worker serves: the console, and the client library it shares with other pages. They know only the
//! public API.

/// A static file.
#[derive(Debug, PartialEq, Eq)]
pub struct Page {
    pub path: &'static str,
    /// Its media type.
    pub kind: &'static str,
    pub text: &'static str,
}

const PAGES: [Page; 5] = [
    Page { path: "/", kind: "text/html; charset=utf-8", text: include_str!("console.html") },
    Page { path: "/console.css", kind: "text/css; charset=utf-8", text: include_str!("console.css") },
    Page { path: "/console.js", kind: "text/javascript; charset=utf-8", text: include_str!("console.js") },
    Page { path: "/client.js", kind: "text/javascript; charset=utf-8", text: include_str!("client.js") },
    Page { path: "/client.d.ts", kind: "text/plain; charset=utf-8", text: include_str!("client.d.ts") },
];

/// The pages' content security policy: run their own scripts, and connect to any server for events.
pub const POLICY: &str = "default-src 'self'; connect-src *; img-src 'self' data: https:; base-uri 'none'; \
                          form-action 'none'; frame-ancestors 'none'";

/// The page at a path.
pub fn page(path: &str) -> Option<&'static Page> {
    PAGES.iter().find(|page| page.path == path)
}
