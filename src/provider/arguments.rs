//! Arguments of a call, as they grow.
//!
//! Some hosts begin them with an empty object, and some send them whole more than once.

/// Growing JSON text, and whether it is complete. Every byte is examined once.
#[derive(Default)]
pub struct Arguments {
    pub text: String,
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// Everything that was opened is closed.
    closed: bool,
}

/// How arguments changed with a delta.
pub enum Grown {
    Not,
    /// This follows what was there.
    By(String),
    /// What was there was a placeholder for this.
    Anew(String),
}

impl Arguments {
    /// Appends text, and says how that changed the whole.
    pub fn grow(&mut self, more: &str) -> Grown {
        let had = self.text.len();
        let placeholder = self.is_same("{}") && had > 0;
        self.take(more);
        match self.text.get(had..) {
            Some("") if !placeholder => Grown::Not,
            Some(rest) if !placeholder => Grown::By(rest.to_string()),
            _ if self.is_same("{}") => Grown::Not,
            _ => Grown::Anew(self.text.clone()),
        }
    }

    pub fn is_whole(&self) -> bool {
        (self.closed || self.text.trim() == "null") && self.depth == 0 && !self.in_string
    }

    /// Whether `other` is equal except for white space.
    pub fn is_same(&self, other: &str) -> bool {
        significant(&self.text).eq(significant(other))
    }

    /// Appends text, unless it repeats the whole. An empty object followed by another was a placeholder.
    pub fn take(&mut self, more: &str) {
        if self.is_whole() && !more.trim().is_empty() {
            if self.is_same(more) {
                return;
            }
            if self.is_same("{}") && more.trim_start().starts_with('{') {
                *self = Self::default();
            }
        }
        self.text.push_str(more);
        for byte in more.bytes() {
            match byte {
                _ if std::mem::take(&mut self.escaped) => {}
                b'\\' if self.in_string => self.escaped = true,
                b'"' => self.in_string = !self.in_string,
                _ if self.in_string => {}
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
            self.closed |= self.depth == 0 && !self.in_string && matches!(byte, b'"' | b'}' | b']');
        }
    }
}

/// The bytes of JSON without the white space between its tokens.
fn significant(json: &str) -> impl Iterator<Item = u8> {
    let (mut in_string, mut escaped) = (false, false);
    json.bytes().filter(move |byte| {
        match byte {
            _ if std::mem::take(&mut escaped) => {}
            b'\\' => escaped = in_string,
            b'"' => in_string = !in_string,
            _ => {}
        }
        in_string || !byte.is_ascii_whitespace()
    })
}
