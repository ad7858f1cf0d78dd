-- Evaluates the questions of tests/postgres/postgres.h. The test program loads these functions once.

-- A value as a text that Loam's text can be compared with: floats as their bits, without the sign of a zero. One
-- function for all types, because PostgreSQL would choose an overload for floats for integers and decimals, too.
CREATE FUNCTION float_bits(x float8) RETURNS text LANGUAGE sql IMMUTABLE STRICT AS $$
  SELECT CASE WHEN x = 'NaN' THEN 'NaN' ELSE encode(float8send(x + 0), 'hex') END
$$;
CREATE FUNCTION shown(x anyelement) RETURNS text LANGUAGE sql IMMUTABLE STRICT AS $$
  SELECT CASE pg_typeof(x)::oid
    WHEN 'float8'::regtype::oid THEN float_bits(x::text::float8)
    WHEN 'float4'::regtype::oid THEN float_bits(x::text::float4)
    WHEN 'bytea'::regtype::oid THEN 'x''' || substr(x::text, 3) || ''''
    ELSE x::text
  END
$$;

-- Ends with an error. Expressions call it where Loam refuses what PostgreSQL does not.
CREATE FUNCTION refuse() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'Loam refuses this' USING ERRCODE = 'data_exception';
END
$$;

-- The value, or an error if Loam has no such value.
CREATE FUNCTION in_range(x date) RETURNS date LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
  IF x < '0001-01-01' OR x > '9999-12-31' THEN RAISE datetime_field_overflow; END IF;
  RETURN x;
END
$$;
CREATE FUNCTION in_range(x timestamp) RETURNS timestamp LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
  IF x < '0001-01-01' OR x >= '10000-01-01' THEN RAISE datetime_field_overflow; END IF;
  RETURN x;
END
$$;
CREATE FUNCTION in_range(x numeric) RETURNS numeric LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
  IF x = 'NaN' THEN RAISE numeric_value_out_of_range; END IF;
  RETURN x;
END
$$;

-- A text of this form, or the error of a text that CAST cannot read.
CREATE FUNCTION of_form(x text, form text) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
  IF x !~ form THEN RAISE invalid_text_representation; END IF;
  RETURN x;
END
$$;

-- LIKE, with an error for every pattern that ends with its escape. In PostgreSQL it is one only if the text before the
-- escape matches.
CREATE FUNCTION matches(x text, pattern text, escape text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
  IF (length(pattern) - length(rtrim(pattern, escape))) % 2 = 1 THEN RAISE invalid_escape_sequence; END IF;
  RETURN x LIKE pattern ESCAPE escape;
END
$$;

-- The interval of a number of seconds, exact to microseconds.
CREATE FUNCTION seconds(x numeric) RETURNS interval LANGUAGE sql IMMUTABLE STRICT AS $$
  SELECT make_interval(days => div(x, 86400)::integer, secs => (x % 86400)::float8)
$$;

-- The value of an expression, or the state and the message of its error.
CREATE TYPE answer AS (state text, value text);
CREATE FUNCTION answer(expression text) RETURNS answer LANGUAGE plpgsql AS $$
DECLARE
  result text;
BEGIN
  EXECUTE 'SELECT shown(' || expression || ')' INTO result;
  RETURN (''::text, result);
EXCEPTION WHEN OTHERS THEN
  RETURN (SQLSTATE::text, SQLERRM::text);
END
$$;
