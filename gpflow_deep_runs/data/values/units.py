"""Texts that stand before or after numbers in tables: currencies, percent, and units of measurement."""

__all__ = ["CURRENCIES", "SCALES", "UNITS"]

_CURRENCIES = (
    "AED ARS AUD BGN BRL CAD CHF CLP CNY COP CZK DKK EGP EUR GBP HKD HRK HUF IDR ILS INR ISK JPY KES KRW MAD MXN MYR "
    "NGN NOK NZD PEN PHP PKR PLN RMB RON RSD RUB SAR SEK SGD THB TRY TWD UAH USD VND ZAR "
    "Fr. SFr. Fr Rs Rs. Kč kr kr. zł Ft lei лв руб руб. EURO Euro euro euros dollar dollars"
)
_UNITS = (
    "% ‰ + k K M B bn mn Mio Mrd mio mrd Tsd Tsd. tsd Mio. Mrd. mln bln thousand million millions billion billions "
    "Lac Lakh Lakhs lakh Cr Crore crore pp \u00b0% "
    "nm µm μm um mm cm dm m km in inch inches ft feet foot yd mi mile miles "
    "mm² cm² m² km² mm2 cm2 m2 km2 ft² ft2 sqft sqm sq.ft. ha acre acres cm³ m³ cm3 m3 ft3 ft³ "
    "ml mL cl dl dL l L liter liters litre litres gal cc "
    "µg μg ug mg g kg t lb lbs oz ton tons "
    "ns µs μs us ms s sec secs second seconds min mins minute minutes h hr hrs hour hours d day days week weeks "
    "month months mo y yr yrs year years Jahr Jahre Tage Std Std. ans jours años anni år jaar "
    "m/s km/h kmh kph mph kn kt knots rpm °C °F ° ºC ºF °K "
    "W kW MW GW Wh kWh MWh hp bhp PS kJ MJ cal kcal kN Nm Pa hPa kPa MPa bar mbar psi mmHg "
    "V mV kV mA Ah mAh Ω ohm kΩ Hz kHz MHz GHz dB dBm lm lx cd "
    "kB KB MB GB TB PB kb Mb Gb KiB MiB GiB bit bits byte bytes kbps Mbps Gbps Mbit/s Gbit/s px dpi "
    "mg/dL mg/dl mg/L mg/l g/L g/l g/dL g/dl µg/L mmol/L mmol/l µmol/L ng/mL IU/L U/L kg/m3 kg/m² kg/m2 g/cm3 "
    "mol mmol ppm ppb ppt bpm mpg kmpl km/l km/kg l/100km L/100km kg/ha t/ha"
)

_LONG_UNITS = (
    *("sq ft", "sq. ft.", "sq. ft", "sq m", "square feet", "square meters", "square metres", "fl oz", "fl. oz."),
    *("per cent", "percent", "km / h", "miles per hour", "US gallons", "cubic feet", "cubic meters", "cubic metres"),
)

SCALES = {
    **dict.fromkeys(("k", "K", "thousand", "Tsd", "Tsd.", "tsd"), 1e3),
    **dict.fromkeys(("M", "mn", "mio", "Mio", "Mio.", "mln", "million", "millions"), 1e6),
    **dict.fromkeys(("Lac", "Lakh", "Lakhs", "lakh"), 1e5),
    **dict.fromkeys(("Cr", "Crore", "crore"), 1e7),
    **dict.fromkeys(("B", "bn", "Mrd", "Mrd.", "mrd", "bln", "billion", "billions"), 1e9),
}
"""Words after numbers that say how many times a thousand they are; in one column these may differ."""

CURRENCIES = frozenset(_CURRENCIES.split())
"""Words and codes; any text of at most three letters and a currency sign (US$) is one, too."""

UNITS = frozenset((*_UNITS.split(), *_LONG_UNITS))
"""Units whose cells are numbers without being asked; with other texts, columns are numbers by --numeric."""
