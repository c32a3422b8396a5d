//! The transcript in the form models accept: every call directly followed by its output, no text between a call and its
//! output, no reasoning without the item it led to, no empty message.

/// One item of the transcript.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub part: Part,
    /// Its body, in the form of a Responses API input item.
    pub body: String,
}

/// Who produced the line, and what kind it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    User,
    Assistant,
    Reasoning,
    Call,
    Output,
}

/// Arranges the lines for a model. The output of one model response stays together: its texts precede its calls, and
/// each piece of reasoning precedes the item it led to.
pub fn arrange(lines: &[Line]) -> Vec<&Line> {
    let mut arranged = Vec::with_capacity(lines.len());
    let (mut reasoning, mut calls) = (Vec::new(), Vec::new());
    for line in lines {
        match line.part {
            Part::User | Part::Output => {
                reasoning.clear();
                arranged.append(&mut calls);
                arranged.push(line);
            }
            Part::Reasoning => reasoning.push(line),
            Part::Assistant if is_empty(line) => {}
            Part::Assistant => {
                arranged.append(&mut reasoning);
                arranged.push(line);
            }
            Part::Call => {
                calls.append(&mut reasoning);
                calls.push(line);
            }
        }
    }
    arranged.append(&mut calls);
    arranged
}

fn is_empty(message: &Line) -> bool {
    let rest = message.body.strip_prefix("{\"content\":[").unwrap_or_default(); // keys are in order
    rest.starts_with(']') || rest.starts_with("{\"text\":\"\",\"type\":\"output_text\"}]")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(part: Part, body: &str) -> Line {
        Line { part, body: body.into() }
    }

    fn order(lines: &[Line]) -> String {
        arrange(lines).iter().map(|line| line.body.as_str()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn text_after_a_call_does_not_come_between_the_call_and_its_output() {
        use Part::{Assistant, Call, Output, Reasoning, User};
        let lines = [
            line(User, "u"),
            line(Reasoning, "r1"),
            line(Call, "c1"),
            line(Reasoning, "r2"),
            line(Assistant, "a"),
            line(Call, "c2"),
            line(Output, "o2"),
            line(Output, "o1"),
            line(Assistant, "b"),
        ];
        assert_eq!(order(&lines), "u r2 a r1 c1 c2 o2 o1 b");
    }

    #[test]
    fn reasoning_that_led_to_nothing_is_left_out() {
        use Part::{Assistant, Reasoning, User};
        let lines =
            [line(User, "u"), line(Reasoning, "r"), line(User, "v"), line(Assistant, "a"), line(Reasoning, "s")];
        assert_eq!(order(&lines), "u v a");
    }
}
