//! Conditions in the Common Expression Language. An expression is parsed once for each request, and its evaluation
//! always ends.
//!
//! Before parsing, the length of the text, the number of its operators and brackets, and their nesting are checked
//! against bounds. These bounds limit the recursion of the parser. After parsing, the depth is checked. Nested loops are
//! refused, and so are loops over the result of a loop or of a sum, which could multiply the size of a value at each
//! step. Lists in the input are bounded. So the evaluation for one object takes time and memory in proportion to the
//! length of the expression times the length of one list.

use cel::common::ast::{EntryExpr, Expr, IdedExpr, operators};
use cel::common::types::CelBool;
use cel::objects::{Key, Map, Value};
use cel::parser::PrattParser;
use cel::{Context, Env};
pub(crate) use checker::{Element, Fields, Type};
use engine::object::clip;
use std::collections::HashMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};

mod checker;
#[cfg(test)]
mod tests;

/// Maximum length of an expression.
const BYTES_MAX: usize = 1024;
/// Maximum number of characters other than letters, digits and blanks. They bound the recursion of the parser.
const SIGNS_MAX: usize = 200;
/// Maximum nesting of brackets.
const NESTING_MAX: u16 = 12;
/// Maximum nesting after parsing. Each operator counts one, a loop several. Evaluation recurses to the same depth.
const DEPTH_MAX: usize = 24;
/// Maximum number of entries of a list in the input of an expression.
pub(crate) const LIST_MAX: usize = 100;
/// Maximum length of text from outside in an error.
const TEXT_MAX_BYTES: usize = 256;

/// Functions that an expression may call besides operators. None takes a pattern.
const FUNCTIONS: [&str; 9] = ["size", "contains", "startsWith", "endsWith", "int", "uint", "double", "string", "type"];
const OPERATORS: [&str; 18] = [
    operators::CONDITIONAL,
    operators::LOGICAL_AND,
    operators::LOGICAL_OR,
    operators::LOGICAL_NOT,
    operators::SUBSTRACT,
    operators::ADD,
    operators::MULTIPLY,
    operators::DIVIDE,
    operators::MODULO,
    operators::EQUALS,
    operators::NOT_EQUALS,
    operators::GREATER_EQUALS,
    operators::LESS_EQUALS,
    operators::GREATER,
    operators::LESS,
    operators::NEGATE,
    operators::INDEX,
    operators::IN,
];

static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(Env::stdlib()));

/// The one variable of a condition, and its fields.
#[derive(Debug)]
pub(crate) struct Subject {
    pub(crate) name: &'static str,
    pub(crate) fields: Fields,
}

/// Input for expressions about the same object.
pub(crate) struct Activation(Context<'static, 'static>);

impl fmt::Debug for Activation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Activation")
    }
}

impl Activation {
    /// Input for conditions on these subjects.
    pub(crate) fn of(subjects: impl IntoIterator<Item = (&'static Subject, Value)>) -> Activation {
        Activation::with(subjects.into_iter().map(|(subject, value)| (subject.name, value)))
    }

    /// Input with these variables.
    pub(crate) fn with(variables: impl IntoIterator<Item = (&'static str, Value)>) -> Activation {
        let mut context = Context::with_env(Arc::clone(&ENVIRONMENT));
        for (name, value) in variables {
            context.add_variable_from_value(name, value);
        }
        Activation(context)
    }
}

/// A checked expression.
#[derive(Clone)]
pub(crate) struct Expression(Arc<IdedExpr>);

/// The result of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    True,
    False,
    /// The evaluation failed: for example a missing field or a division by zero.
    Failed,
}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Expression")
    }
}

/// An error in an expression, and its position: line and column, from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mistake {
    pub(crate) what: String,
    pub(crate) at: Option<(usize, usize)>,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((line, column)) = self.at {
            write!(f, "line {line}, column {column}: ")?;
        }
        f.write_str(&self.what)
    }
}

impl Mistake {
    fn nowhere(what: impl Into<String>) -> Mistake {
        Mistake { what: what.into(), at: None }
    }
}

impl Expression {
    /// Parses and checks a condition on one subject. `None` for an empty text.
    pub(crate) fn of(text: &str, subject: &'static Subject) -> Result<Option<Expression>, Mistake> {
        if text.is_empty() {
            return Ok(None);
        }
        Expression::with(text, &[(subject.name, Type::Object(subject.fields))], &[Type::Bool]).map(Some)
    }

    /// Parses and checks an expression with these variables and one of these types.
    pub(crate) fn with(text: &str, variables: &[(&'static str, Type)], types: &[Type]) -> Result<Expression, Mistake> {
        let read = read(text).and_then(|expr| {
            check(&expr, text, variables)?;
            checker::check(&expr, text, variables, types)?;
            Ok(expr)
        });
        match read {
            Ok(expr) => Ok(Expression(Arc::new(expr))),
            Err(Mistake { what, at }) => Err(Mistake { what: clip(&what, TEXT_MAX_BYTES), at }),
        }
    }

    /// Evaluates the condition.
    pub(crate) fn evaluate(&self, activation: &Activation) -> Verdict {
        let evaluate = || {
            let found = Value::resolve_val(&self.0, &activation.0).ok()?;
            found.downcast_ref::<CelBool>().map(|found| *found.inner())
        };
        match unless_panicking(evaluate) {
            Some(true) => Verdict::True,
            Some(false) => Verdict::False,
            None => Verdict::Failed,
        }
    }

    /// The value of the expression. `None`: the evaluation failed.
    pub(crate) fn value(&self, activation: &Activation) -> Option<Value> {
        unless_panicking(|| Value::resolve(&self.0, &activation.0).ok())
    }
}

/// A panic of the interpreter counts as a failed evaluation, because the expression comes from the network.
fn unless_panicking<T>(evaluate: impl FnOnce() -> Option<T>) -> Option<T> {
    catch_unwind(AssertUnwindSafe(evaluate)).unwrap_or_default()
}

/// A map with text keys, as expressions see it.
pub(crate) fn map<const N: usize>(fields: [(&'static str, Value); N]) -> Value {
    let fields = fields.into_iter().map(|(name, value)| (Key::from(name), value));
    Value::Map(Map { map: Arc::new(fields.collect::<HashMap<Key, Value>>()) })
}

/// A list, cut to [`LIST_MAX`] entries.
pub(crate) fn list(entries: impl Iterator<Item = Value>) -> Value {
    Value::List(Arc::new(entries.take(LIST_MAX).collect()))
}

fn read(text: &str) -> Result<IdedExpr, Mistake> {
    if text.len() > BYTES_MAX {
        return Err(Mistake::nowhere(format!("it has {} bytes; at most {BYTES_MAX}", text.len())));
    }
    let signs = text.chars().filter(|sign| !sign.is_alphanumeric() && !sign.is_whitespace()).count();
    if signs > SIGNS_MAX {
        return Err(Mistake::nowhere(format!(
            "it has {signs} operators, brackets and other signs; at most {SIGNS_MAX}"
        )));
    }
    // A panic of the parser counts as a syntax error, because the text comes from the network.
    let parsed = catch_unwind(|| PrattParser::new().max_recursion_depth(NESTING_MAX).parse(text));
    let Ok(parsed) = parsed else { return Err(Mistake::nowhere("it cannot be parsed")) };
    parsed.map_err(|errors| match errors.errors.into_iter().next() {
        Some(error) => {
            let place = |number: isize| usize::try_from(number).ok().filter(|&number| number > 0);
            let at = place(error.pos.0).zip(place(error.pos.1));
            Mistake { what: error.msg, at }
        }
        None => Mistake::nowhere("it cannot be parsed"),
    })
}

/// Admits only known variables, functions and fields, and no expensive operation.
fn check(expr: &IdedExpr, text: &str, variables: &[(&'static str, Type)]) -> Result<(), Mistake> {
    // Each expression with its depth, and the loop variables in scope.
    let mut open: Vec<(&IdedExpr, usize, Vec<&str>)> = vec![(expr, 1, Vec::new())];
    while let Some((next, depth, known)) = open.pop() {
        if depth > DEPTH_MAX {
            return Err(Mistake::nowhere(format!("its parts are nested deeper than {DEPTH_MAX}")));
        }
        let depth = depth + 1;
        let mistake = |what: String, word: &str| Mistake { what, at: place(text, word) };
        match &next.expr {
            Expr::Unspecified => return Err(Mistake::nowhere("it cannot be parsed")),
            Expr::Literal(_) => {}
            Expr::Ident(name) if known.contains(&name.as_str()) => {}
            Expr::Ident(name) if variables.iter().any(|(variable, _)| variable == name) => {}
            Expr::Ident(name) => {
                let names: Vec<&str> = variables.iter().map(|(variable, _)| *variable).collect();
                return Err(mistake(format!("there is no variable {name:?}, only {}", names.join(", ")), name));
            }
            Expr::Struct(made) => {
                return Err(mistake("an expression cannot create messages".to_owned(), &made.type_name));
            }
            Expr::Call(call) => {
                let name = call.func_name.as_str();
                if !FUNCTIONS.contains(&name) && !OPERATORS.contains(&name) && name != operators::NOT_STRICTLY_FALSE {
                    return Err(mistake(format!("there is no function {name:?}, only {}", FUNCTIONS.join(", ")), name));
                }
                open.extend(parts(next).into_iter().map(|part| (part, depth, known.clone())));
            }
            Expr::Select(_) | Expr::List(_) | Expr::Map(_) => {
                open.extend(parts(next).into_iter().map(|part| (part, depth, known.clone())));
            }
            Expr::Comprehension(over) => {
                if !known.is_empty() {
                    return Err(mistake("nested loops are not allowed".to_owned(), &over.iter_var));
                }
                if may_grow(&over.iter_range) {
                    let what = "a loop over the result of a loop or of a sum is not allowed".to_owned();
                    return Err(mistake(what, &over.iter_var));
                }
                let names = [Some(&over.iter_var), over.iter_var2.as_ref(), Some(&over.accu_var)];
                let inside: Vec<&str> = names.into_iter().flatten().map(String::as_str).collect();
                open.push((&over.iter_range, depth, known));
                for part in [&over.accu_init, &over.loop_cond, &over.loop_step, &over.result] {
                    open.push((part, depth, inside.clone()));
                }
            }
        }
    }
    Ok(())
}

/// The direct parts of an expression that is no loop.
fn parts(expr: &IdedExpr) -> Vec<&IdedExpr> {
    match &expr.expr {
        Expr::Call(call) => call.target.iter().map(|target| &**target).chain(&call.args).collect(),
        Expr::Select(select) => vec![&select.operand],
        Expr::List(list) => list.elements.iter().collect(),
        Expr::Map(map) => {
            let of_entry = map.entries.iter().map(|entry| match &entry.expr {
                EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
                EntryExpr::StructField(field) => vec![&field.value],
            });
            of_entry.flatten().collect()
        }
        Expr::Comprehension(_) | Expr::Ident(_) | Expr::Literal(_) | Expr::Struct(_) | Expr::Unspecified => Vec::new(),
    }
}

/// Whether the expression has a loop or a sum, whose value can be larger than all lists of the input.
fn may_grow(expr: &IdedExpr) -> bool {
    let mut open = vec![expr];
    while let Some(next) = open.pop() {
        match &next.expr {
            Expr::Comprehension(_) => return true,
            Expr::Call(call) if call.func_name == operators::ADD => return true,
            Expr::Call(_)
            | Expr::Select(_)
            | Expr::List(_)
            | Expr::Map(_)
            | Expr::Ident(_)
            | Expr::Literal(_)
            | Expr::Struct(_)
            | Expr::Unspecified => open.extend(parts(next)),
        }
    }
    false
}

/// Line and column, from 1, of the first occurrence of a word.
fn place(text: &str, word: &str) -> Option<(usize, usize)> {
    let of_word = |sign: char| sign.is_alphanumeric() || sign == '_';
    let whole = |&(at, _): &(usize, &str)| {
        !text[..at].ends_with(of_word) && !text[at + word.len()..].starts_with(of_word) && !word.is_empty()
    };
    let (at, _) = text.match_indices(word).find(whole)?;
    let before = &text[..at];
    let column = before.rsplit('\n').next().map_or(0, |line| line.chars().count()) + 1;
    Some((before.matches('\n').count() + 1, column))
}
