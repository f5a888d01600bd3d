"""What `store.guard` lets readers use, by name."""

from __future__ import annotations

import re

# Kinds of nodes in the JSON syntax tree.
NODES = frozenset(
    """
    ArrayJoin Asterisk ColumnsApplyTransformer ColumnsExceptTransformer ColumnsListMatcher ColumnsRegexpMatcher
    ColumnsReplaceTransformer ColumnsReplaceTransformerReplacement ColumnsTransformerList DataType ExplainQuery
    ExpressionList Function Identifier InterpolateElement Literal OrderByElement QualifiedAsterisk
    QualifiedColumnsListMatcher QualifiedColumnsRegexpMatcher QueryParameter SampleRatio SelectIntersectExceptQuery
    SelectQuery SelectWithUnionQuery SetQuery ShowColumnsQuery ShowIndexesQuery ShowTablesQuery Subquery
    TableExpression TableIdentifier TableJoin TablesInSelectQuery TablesInSelectQueryElement WindowDefinition
    WindowListElement WithElement
    """.split()  # noqa: SIM905 - a list of words reads as one
)
# Statements that the engine has no JSON for, as EXPLAIN AST calls them, and what may hang below them.
PLAIN_STATEMENTS = frozenset(
    {
        "DescribeQuery",
        "ExistsDatabaseQuery",
        "ExistsTableQuery",
        "ShowCreateDatabaseQuery",
        "ShowCreateTableQuery",
        "ShowFunctions",
    }
)
PLAIN_NODES = frozenset({"TableExpression", "TableIdentifier", "Identifier"})

# Table functions that make rows out of nothing or out of a subquery that is checked like any other.
TABLE_FUNCTIONS = frozenset(
    {"generateSeries", "generate_series", "numbers", "numbers_mt", "values", "view", "zeros"}
)

# Categories of system.functions in which everything computes from its arguments.
FUNCTION_CATEGORIES = frozenset(
    {
        "Aggregate Functions",
        "Arithmetic",
        "Arrays",
        "Bit",
        "Bitmap",
        "Comparison",
        "Conditional",
        "Dates and Times",
        "Distance",
        "Encoding",
        "Financial",
        "Geo",
        "Geo Polygon",
        "Hash",
        "IP Address",
        "JSON",
        "Logical",
        "Map",
        "Mathematical",
        "Null",
        "NumericIndexedVector",
        "Random Number",
        "Rounding",
        "String",
        "String Replacement",
        "String Search",
        "String Splitting",
        "Time Window",
        "Tuple",
        "Type Conversion",
        "URL",
        "UUID",
    }
)
# The harmless ones of mixed categories, and what only the parser knows as a function.
FUNCTIONS = frozenset(
    """
    bar blockNumber byteSize connectionId countDigits currentDatabase currentUser current_database current_user database
    displayName dumpColumnStructure exists finalizeAggregation formatQuery formatQuerySingleLine
    formatReadableDecimalSize formatReadableQuantity formatReadableSize formatReadableTimeDelta getSetting grouping
    hostName identity ignore indexHint initializeAggregation isConstant lambda lowCardinalityIndices lowCardinalityKeys
    materialize neighbor parseReadableSize parseTimeDelta revision rowNumberInAllBlocks rowNumberInBlock
    runningAccumulate runningDifference seriesDecomposeSTL seriesOutliersDetectTukey throwIf timezone toColumnTypeName
    toTypeName transform untuple uptime
    user variantElement variantType version visibleWidth
    """.split()  # noqa: SIM905 - a list of words reads as one
)

# Databases that are the file system in disguise.
OVERLAYS = frozenset({"default"})
SYSTEM_DATABASES = frozenset({"system", "information_schema"})
# What stock clients look up when they connect, and what a person may need to understand the store.
SYSTEM_TABLES = frozenset(
    {
        "aggregate_function_combinators",
        "build_options",
        "columns",
        "data_skipping_indices",
        "data_type_families",
        "databases",
        "formats",
        "functions",
        "numbers",
        "one",
        "parts",
        "parts_columns",
        "settings",
        "table_engines",
        "table_functions",
        "tables",
        "time_zones",
    }
)

# Settings that shape an answer or bound it further; some of the same names write files.
SETTING = re.compile(
    r"(?!\w*(schema|path|file))("
    r"(output_format|input_format|date_time|cast|join_use|transform_null|optimize|force)_\w+"
    r"|format_(csv|tsv|json|null|custom|binary|display|pretty)_\w+"
    r"|(max|min)_(result|rows_to|bytes_to|rows_in|bytes_in|block)_\w+|(result|read|group_by)_overflow_mode"
    r"|aggregate_functions_null_for_empty|asterisk_include_\w+|extremes|final|group_by_use_nulls|limit|log_comment"
    r"|offset|prefer_column_name_to_alias|session_timezone|union_default_mode|use_skip_indexes\w*)"
)
