//! What is durable: rows as they were written once are read, and written again as they were.

use crate::json;
use crate::session::{Entry, State};

#[test]
fn every_kind_of_record_is_read_as_it_was_written() {
    let head = r#"{"response_id":"resp_1","model":"m","created_at":3,"started":1}"#;
    let message = r#"{"id":"item_1","response_id":"resp_1","created_at":3,"status":"completed","kind":{"message":{"role":"user"}}}"#;
    let call = r#"{"id":"item_2","response_id":"resp_1","created_at":3,"status":"completed","kind":{"function_call":{"call_id":"c","name":"look"}}}"#;
    let output = r#"{"id":"item_3","response_id":"resp_1","created_at":4,"status":"expired","kind":{"function_call_output":{"call_id":"c"}}}"#;
    let reasoning =
        r#"{"id":"item_4","response_id":"resp_1","created_at":4,"status":"incomplete","kind":"reasoning"}"#;
    let error = r#"{"id":"item_5","response_id":"resp_1","created_at":4,"status":"completed","kind":"error"}"#;
    let usage = r#"{"input_tokens":1,"output_tokens":2,"total_tokens":3,"cached_tokens":0,"reasoning_tokens":0}"#;
    let tool =
        r#"{"name":"look","description":"d","parameters":{"type":"object"},"strict":true,"tool_timeout_s":5}"#;
    let open = r#"{"seq":2,"item_id":"item_2","call_id":"c","name":"look","index":0,"created_at":3,"expires_at":9,"parked":true}"#;
    let failure = r#"{"code":"upstream_error","message":"no"}"#;
    let rows = [
        format!(r#"{{"seeded":{{"item":{message}}}}}"#),
        format!(
            r#"{{"queued":{{"item":{message},"tools":[{tool}],"model":"n","settings":{{"temperature":1}},"steers":true}}}}"#
        ),
        r#"{"withdrawn":{"queued":4,"at":5}}"#.to_string(),
        r#"{"steered":{"queued":4,"at":5}}"#.to_string(),
        format!(r#"{{"started":{{"turn":{head},"source":{{"message":{{"item":{message}}}}}}}}}"#),
        format!(r#"{{"started":{{"turn":{head},"source":{{"queued":4}}}}}}"#),
        format!(r#"{{"output":{{"item":{call},"index":0,"context":true}}}}"#),
        format!(r#"{{"output":{{"item":{reasoning},"index":1,"context":false}}}}"#),
        format!(r#"{{"called":{{"calls":[{open}],"usage":{usage},"at":5}}}}"#),
        format!(r#"{{"call_resolved":{{"item":{output},"call":2,"index":1,"resumes":true}}}}"#),
        format!(r#"{{"note":{{"item":{error}}}}}"#),
        r#"{"dropped":{"at":5}}"#.to_string(),
        format!(r#"{{"retried":{{"attempt":2,"restarts":1,"delay_seconds":1,"error":{failure},"at":5}}}}"#),
        format!(r#"{{"ended":{{"outcome":"completed","usage":{usage},"at":5,"turn":{head}}}}}"#),
        format!(r#"{{"ended":{{"outcome":{{"failed":{failure}}},"usage":{usage},"at":5,"turn":{head}}}}}"#),
    ];
    for row in &rows {
        let entry: Entry = json::read(row).unwrap();
        assert_eq!(&serde_json::to_string(&entry).unwrap(), row);
        // A newer worker may have written more than is known here.
        let newer = row.replacen(":{", r#":{"later":[1],"#, 1);
        assert_eq!(json::read::<Entry>(&newer).unwrap(), entry);
    }
    assert!(json::read::<Entry>(r#"{"started":{"turn":{}}}"#).is_err());
    let lacks = json::read::<Entry>(&rows[0].replace(r#"{"role":"user"}"#, "{}")).unwrap_err();
    assert!(lacks.to_string().ends_with("missing field `role`"), "{lacks}");
    let unknown = json::read::<Entry>(r#"{"later":{"at":5}}"#).unwrap_err();
    assert!(unknown.to_string().starts_with("unknown variant `later`"), "{unknown}");
}

#[test]
fn every_phase_is_read_as_it_was_written() {
    let usage = r#"{"input_tokens":1,"output_tokens":2,"total_tokens":3,"cached_tokens":0,"reasoning_tokens":0}"#;
    let turn = format!(
        r#"{{"head":{{"response_id":"resp_1","model":"m","created_at":3,"started":1}},"source":1,"tools":["look"],"timeouts":{{"look":5}},"joined":[2],"model_calls":1,"items":2,"usage":{usage}}}"#
    );
    let open =
        r#"{"seq":2,"item_id":"item_2","call_id":"c","name":"look","index":0,"created_at":3,"parked":true}"#;
    for phase in [
        r#""idle""#.to_string(),
        format!(r#"{{"sampling":{{"turn":{turn},"attempt":1,"restarts":0,"at":3,"since":3}}}}"#),
        format!(r#"{{"sampling":{{"turn":{turn},"attempt":2,"restarts":1,"at":3,"since":3,"wait":9}}}}"#),
        format!(r#"{{"parked":{{"turn":{turn},"calls":[{open}]}}}}"#),
    ] {
        let row = format!(
            r#"{{"next":5,"phase":{phase},"queue":[],"last":null,"usage":{usage},"requests":1,"updated_at":3}}"#
        );
        let state: State = json::read(&row).unwrap();
        assert_eq!(serde_json::to_string(&state).unwrap(), row);
    }
}
